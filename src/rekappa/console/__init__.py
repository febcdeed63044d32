"""Every operation in a browser: pages made on the server, each change a `rekappa` command in a process of its own."""
