"""How people and programs prove who they are, above REST: passkeys, public keys of tokens, and their REST resources."""
