"""ConsumeQueues and BatchConsumeQueues as the engine appends to them and reads from them."""
