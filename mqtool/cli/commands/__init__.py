"""The commands of `mqtool`: each file has the options, the function and the schema of its output."""
