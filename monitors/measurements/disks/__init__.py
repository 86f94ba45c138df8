"""What disks read and write, who waits for them, and for how long."""
