"""Ids to weights, one step at a time, without folder, clock, output and options."""
