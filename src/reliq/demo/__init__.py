"""A whole reliq on one machine, for a person to see it work: `reliq demo` and `reliq dev`."""
