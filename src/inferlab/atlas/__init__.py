"""Records of machines: how they are taken, checked, shared, and held against predictions."""
