"""IndexFiles as the engine appends to them and looks keys up in them."""
