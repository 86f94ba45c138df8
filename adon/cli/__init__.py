"""One module per noun of the command line. Each adds its parser and imports the rest when run."""
