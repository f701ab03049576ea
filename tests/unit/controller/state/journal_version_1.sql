-- What the journal of schema 1 wrote, as SQLite's .dump tells it.
BEGIN TRANSACTION;
CREATE TABLE decision (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, sequence INTEGER NOT NULL, digest TEXT NOT NULL,
    policy TEXT NOT NULL, latency_s REAL NOT NULL, problem TEXT NOT NULL);
INSERT INTO "decision" VALUES(1,10.0,1,'abc','srtf',0.01,'');
CREATE TABLE intent (
    id INTEGER PRIMARY KEY, time_s REAL NOT NULL, verb TEXT NOT NULL, job_id TEXT NOT NULL,
    submit_time_s INTEGER NOT NULL, detail TEXT NOT NULL, done_time_s REAL, outcome TEXT);
INSERT INTO "intent" VALUES(1,9.0,'hold','12_3',1000,'adopt',9.5,'done');
INSERT INTO "intent" VALUES(2,10.0,'pin','12_3',1000,'n1:6,n3:6',NULL,NULL);
CREATE TABLE job (
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL,
    original TEXT, pin TEXT, refusal TEXT, served TEXT, yielded INTEGER,
    PRIMARY KEY (job_id, submit_time_s)) WITHOUT ROWID;
INSERT INTO "job" VALUES('12_3',1000,'{"min_nodes": 1, "max_nodes": 0, "num_tasks": 1, "num_cpus": 1, "gpus_per_node": null, "gpus_per_job": 12, "gpus_per_task": null, "gpu_type": "", "memory_mib_per_node": null, "memory_mib_per_cpu": null, "required_nodes": ["n1"], "excluded_nodes": ["n2"], "tasks_per_node": null}','{"nodes": ["n1", "n3"], "gpus": [6, 6], "restarts": 1, "pinned_at_s": 2000.5, "policy": "srtf", "reason": "best fit"}','{"reason": "AssocGrpGRES", "refused_at_s": 1.0, "retry_at_s": 2.0, "count": 3, "like": ""}',NULL,2);
INSERT INTO "job" VALUES('13',1001,NULL,NULL,NULL,'{"service_s": 7.0, "gpu_s": 8.0, "first_submit_s": 900}',NULL);
CREATE TABLE placed (
    decision INTEGER NOT NULL REFERENCES decision (id) ON DELETE CASCADE,
    job_id TEXT NOT NULL, submit_time_s INTEGER NOT NULL, placement TEXT NOT NULL, reason TEXT NOT NULL);
INSERT INTO "placed" VALUES(1,'12_3',1000,'n1:6,n3:6','best fit');
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
COMMIT;
PRAGMA user_version = 1;
