"""Single sign-on by OpenID Connect: one provider, who people are there, and the roles that their groups give."""
