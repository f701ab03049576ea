"""Features of nodes. In each lot two nodes are fast, one is slow; two are in rack1, one in rack2."""

from __future__ import annotations

from tests.parity.case import Job, Until, one, stepped, story

SUBJECT = "Features"
GPU = "--gres=gpu:1"

CASES = (
    stepped("feature-one", f"-C slow {GPU}", where=True),
    stepped("feature-and", f"-C 'fast&rack2' {GPU}", where=True),
    stepped("feature-or", f"-C 'slow|rack2' {GPU}"),
    stepped("feature-two-nodes", f"-N2 -C fast {GPU}", where=True),
    one("feature-unknown", f"-C purple {GPU}"),
    one("feature-too-few-nodes", f"-N2 -C slow {GPU}"),
    one("feature-impossible", f"-C 'slow&rack2' {GPU}"),
    stepped("feature-counts", f"-N2 -C 'slow*1&fast*1' {GPU}"),
    stepped("feature-brackets", f"-N2 -C '[rack1|rack2]' {GPU}"),
    stepped("feature-parentheses", f"-C '(slow|fast)&rack2' {GPU}"),
    stepped("feature-not-node", f"-C fast -x {{n1}} {GPU}", where=True),
    stepped("prefer-there", f"--prefer=slow {GPU}"),
    stepped("prefer-unknown", f"--prefer=purple {GPU}"),
    stepped("prefer-with-constraint", f"-C rack1 --prefer=slow {GPU}"),
    story(
        "prefer-busy",
        Job(label="first", options="-C slow --gres=gpu:8", script="sleep 6"),
        Until("first"),
        Job(label="second", options=f"--prefer=slow {GPU}"),
        within_s=30,
    ),
    story(
        "feature-busy",
        Job(label="first", options="-C slow --gres=gpu:8", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-C slow {GPU}"),
        Job(label="third", options=f"-C fast {GPU}"),
        within_s=30,
    ),
    one("cluster-constraint", f"--cluster-constraint=x {GPU}"),
    one("licenses-one", f"-L lic1:1 {GPU}"),
    one("licenses-unknown", f"-L nothing:1 {GPU}"),
    one("licenses-too-many", f"-L lic1:2 {GPU}"),
    one("licenses-either", f"-L 'lic1:1|lic5:1' {GPU}"),
    story(
        "licenses-taken",
        Job(label="first", options=f"-L lic2:1 {GPU}", script="sleep 5"),
        Until("first"),
        Job(label="second", options=f"-L lic2:1 {GPU}"),
        Job(label="third", options=GPU),
        within_s=40,
    ),
    story(
        "licenses-two-at-once",
        *(Job(label=name, options=f"-L pair:1 {GPU}", script="sleep 4") for name in ("first", "second", "third")),
        within_s=40,
    ),
    one("licenses-of-two-kinds", f"-L lic3:1,lic4:1 {GPU}"),
)
