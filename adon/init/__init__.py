"""``adon init``: what is there is looked for, the rest is asked, and one adon.yml is made of it."""
