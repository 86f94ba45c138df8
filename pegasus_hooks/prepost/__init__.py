"""What runs before and after a job: the hooks that request paths and give them back."""
