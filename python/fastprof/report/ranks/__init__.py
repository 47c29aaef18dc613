"""The ranks of a distributed job, compared: who is late, why, and what it costs.

``live`` compares windows while the job runs, ``groups`` joins the windows of large jobs.
"""
