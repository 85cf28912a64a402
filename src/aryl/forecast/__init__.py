"""How much the inference side will need, and what may be lent by that."""
