"""What is measured between sites: tasks and their schedule, who measures, and what came of it."""
