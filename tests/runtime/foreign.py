#!/usr/bin/env python3
"""foreign.py COMMAND...: runs the command while the first port that ranks would meet at (MASTER_PORT + 1 of ranks.py, whose
parent this is) belongs to a server that accepts, says something else, and closes."""
import os, socket, subprocess, sys, threading

def serve(server):
    while True:
        caller, _ = server.accept()
        caller.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        caller.close()

server = socket.create_server(("", 20000 + os.getpid() % 1000 * 10 + 1))
threading.Thread(target=serve, args=[server], daemon=True).start()
sys.exit(subprocess.call(sys.argv[1:]))
