"""Webhooks: which ones to call for a write, what to send, and what answers mean.

Synchronous. A write that needs an answer raises `CallsNeeded` before it changes
anything. `http.handler` sends the calls, and runs the write again with the answers.
"""
