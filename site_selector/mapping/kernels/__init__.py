"""The loops over jobs, files and transfers, which numba compiles."""
