"""When each measurement is made, so that none disturbs another (thesis, Algorithm 1: EDF-CE)."""
