"""Identity of people and programs, above REST: passkeys, public keys of tokens, and their REST resources."""
