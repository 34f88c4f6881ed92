"""Programs on the rooms of the road; each can be deleted with its tests."""
