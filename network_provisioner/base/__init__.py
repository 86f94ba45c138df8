"""What short-lived programs beside workflows need of us: started per job, standard library only."""
