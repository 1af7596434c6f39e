"""What is generated in the documentation: a page per method, the reference, `faithfulness.md`."""
