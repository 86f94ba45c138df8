"""The parts of figure18.py: the story, the two worlds it can be told in, and the drawing."""
