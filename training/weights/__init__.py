"""Weights of language models: learned from captured tokens, and served, in a process of its own.

Workers and web processes never import torch. They talk to a server over one base model (``model_server``), which
speaks OpenAI's chat completions and the training calls of the Tinker API. Behind it is an engine: ``torch_engine``
(transformers on the model server's own processor or GPU) or ``tinker_engine`` (any server of the Tinker API).
"""
