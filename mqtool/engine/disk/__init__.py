"""Files as the engine writes them: fixed-size mapped files, their directories, and pages prepared in advance."""
