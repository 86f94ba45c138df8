"""``adon init``: finds what exists, the rest is asked, and one adon.yml is made of it."""
