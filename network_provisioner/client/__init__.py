"""Asking a broker, from short programs that must start fast and never wait long."""
