"""Thin adapters to the trainers people already use; each is imported only when used."""
