"""
The scenario harness: hurt the running system from outside, judge by what outsiders saw.

A black box. It starts the shipped commands as processes, sends signed deliveries, plays the
upstream, breaks things, and reads the write-ahead log. Of the product it imports words
(`reliq.domain`), errors and `reliq.servers`, never what is to be judged; even the formula of
the pauses is written here a second time.

    model/         what a file may say; places.py, fill.py, load.py: from text to cells
    rig.py         what runs share: a Postgres with a template, a parent that forks
    stage/         what one run has: a database, processes, an upstream, senders, links
    proxy/         a TCP proxy with Toxiproxy's words and API
    conduct.py     one run: load, steps, rest; steps.py: triggers; faults/: the harm, a kind a file
    recorder.py    what was seen; history.py: in one order; merge.py: under which terms
    invariants/    one promise a file: pure functions of the history
    verdict.py     pass, violated, vacuous or void; report.py: in words; timeline/: as a picture
    run.py         one run with what it leaves behind; series.py: many; screen.py: for whom
    mutants.py     broken copies of the product; placebo.py: no harm at all
    pytest_plugin.py   files as tests
"""
