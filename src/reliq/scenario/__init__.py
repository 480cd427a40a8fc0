"""
The scenario harness: hurt the running system from outside, judge by what outsiders saw.

A black box. It starts the shipped commands as processes, sends signed deliveries, plays the
upstream, breaks things, and reads the tables with its own SQL. Of the product it imports words
(`reliq.domain`), errors and `reliq.servers`, never what is to be judged; even the formula of
the pauses is written here a second time.

    load.py     YAML file → Scenario, or an error with line and column
    stage/      Postgres, processes, the upstream, the senders: everything that is real
    conduct.py  build, load, break, wait for rest, read
    merge.py    what each witness saw → one History
    invariants/ one promise a file: pure functions of the history
    verdict.py  pass, violated, vacuous or void
    report.py   the verdict in words and as JSON
    run.py      one run from file to verdict, with its folder of artefacts
"""
