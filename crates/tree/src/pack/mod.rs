//! What makes a container out of a tree: the ordered parallel map, the output that appears whole or not at all, and
//! progress.
