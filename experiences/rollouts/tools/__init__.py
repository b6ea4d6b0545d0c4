"""Python tools that agents may call. Each really works on the text it is given."""

from experiences.rollouts.tools.base import AgentTool, FunctionTool, Tool, ToolError, ToolResult, tools
from experiences.rollouts.tools.llm_tools import offered, offers
from experiences.rollouts.tools.toolbox import BUILT_IN, TRAPS, Toolbox, toolbox

__all__ = [
    "BUILT_IN",
    "TRAPS",
    "AgentTool",
    "FunctionTool",
    "Tool",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "offered",
    "offers",
    "toolbox",
    "tools",
]
