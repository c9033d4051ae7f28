"""Files as the engine writes them: fixed-size mapped files, their directories, and pages made ahead of the writer."""
