"""What may be had: decisions as functions of values, without effects."""
