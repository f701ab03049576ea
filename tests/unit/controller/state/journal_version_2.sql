-- What the journal of schema 2 wrote at first, as SQLite's .dump tells it.
BEGIN TRANSACTION;
CREATE TABLE decision (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    policy TEXT NOT NULL, latency_s REAL NOT NULL, problem TEXT NOT NULL);
INSERT INTO "decision" VALUES(1,10.0,1,'abc','srtf',0.01,'');
CREATE TABLE intent (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, verb TEXT NOT NULL, job_id TEXT NOT NULL,
    submit_time_s INTEGER NOT NULL, detail TEXT NOT NULL, done_time_s REAL, outcome TEXT);
INSERT INTO "intent" VALUES(1,9.0,'pin','12_3',1000,'n1:6,n3:6',9.5,'done');
CREATE TABLE job (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL,
    original TEXT, pin TEXT, refusal TEXT, served TEXT, yielded INTEGER, elsewhere TEXT,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
INSERT INTO "job" VALUES('12_3',1000,'{"min_nodes": 1, "max_nodes": 0, "num_tasks": 1, "num_cpus": 1, "gpus_per_node": null, "gpus_per_job": 12, "gpus_per_task": null, "gpu_type": "", "memory_mib_per_node": null, "memory_mib_per_cpu": null, "required_nodes": ["n1"], "excluded_nodes": ["n2"], "tasks_per_node": null, "cpus_per_task": null, "gpus_fixed": false}','{"nodes": ["n1", "n3"], "gpus": [6, 6], "restarts": 1, "pinned_at_s": 2000.5, "policy": "srtf", "reason": "best fit"}','{"reason": "AssocGrpGRES", "refused_at_s": 1.0, "retry_at_s": 2.0, "count": 3, "like": ""}','{"service_s": 7.0, "gpu_s": 8.0, "first_submit_s": 900}',2,'{"avoid": ["n4"], "only": ["n1", "n3"], "gpus": 12}');
CREATE TABLE placed (
    decision INTEGER NOT NULL REFERENCES decision (id) ON DELETE CASCADE,
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, placement TEXT NOT NULL, reason TEXT NOT NULL);
INSERT INTO "placed" VALUES(1,'12_3',1000,'n1:6,n3:6','best fit');
CREATE TABLE preemption (
    number INTEGER PRIMARY KEY AUTOINCREMENT, job_id TEXT NOT NULL, raw_id INTEGER NOT NULL,
    submit_time_s INTEGER NOT NULL, restarts INTEGER NOT NULL, cause TEXT NOT NULL, why TEXT NOT NULL, way TEXT NOT NULL,
    force INTEGER NOT NULL, nodes TEXT NOT NULL, elsewhere TEXT NOT NULL, within_s REAL NOT NULL, stage TEXT NOT NULL,
    asked_s REAL NOT NULL, saved_s REAL, stopped_s REAL, started_s REAL, resumed_s REAL, ended_s REAL, step INTEGER,
    attempt INTEGER NOT NULL, problem TEXT NOT NULL);
INSERT INTO "preemption" VALUES(2,'12_3',15,1000,1,'operator','by hand','checkpoint',1,'["n1", "n3"]','{"avoid": ["n1"], "only": ["n4", "n5"], "gpus": 4}',60.0,'asked',100.5,NULL,NULL,NULL,NULL,NULL,NULL,0,'');
CREATE TABLE run (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, user TEXT NOT NULL, name TEXT NOT NULL,
    start_time_s REAL, end_time_s REAL NOT NULL, service_s REAL NOT NULL, num_gpus INTEGER NOT NULL,
    num_nodes INTEGER NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
INSERT INTO "run" VALUES('7',500,'ann','bert',4950.0,5000.0,50.0,8,1,'COMPLETED');
CREATE INDEX intent_open ON intent (done_time_s) WHERE done_time_s IS NULL;
CREATE INDEX placed_job ON placed (job_id, submit_time_s);
CREATE INDEX placed_decision ON placed (decision);
CREATE INDEX run_name ON run (user, name, end_time_s);
CREATE INDEX preemption_open ON preemption (number) WHERE ended_s IS NULL;
CREATE INDEX preemption_job ON preemption (raw_id, number);
CREATE INDEX preemption_asked ON preemption (asked_s);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('preemption',2);
COMMIT;
PRAGMA user_version = 2;
