"""Files that clients send: received piece by piece, so that none is held in memory."""
