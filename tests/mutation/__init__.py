"""Mutation testing: does a small error in the arithmetic turn the vectors or the identities red?"""
