"""What can be measured: network, host, and any command."""
