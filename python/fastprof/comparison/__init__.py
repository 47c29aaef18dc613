"""Compares saved runs, and checks conditions on one."""
