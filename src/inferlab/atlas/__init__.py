"""Records of machines: measuring, checking and sharing them, and comparing them with predictions."""
