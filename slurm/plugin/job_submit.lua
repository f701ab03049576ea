-- Headway job_submit.lua, version 4
--
-- Loaded by slurmctld (JobSubmitPlugins=lua) from the folder of slurm.conf; installed by `headway-setup slurm --apply`.
-- Holds the batch jobs that Headway schedules until Headway has chosen their nodes, and keeps users from releasing them; and
-- writes what users ask for by --headway-... options (the SPANK plugin's) into jobs' comments.
--
-- Fail-open: everything that this script knows, it reads from the controller's lease, a file that is rewritten every
-- second. No lease, a stale one, one that makes no sense, or an error in here: the job passes as if Headway did not exist.
-- It runs inside slurmctld while slurmctld is locked, so it must never wait: see wake() and lease_text().
--
-- Beside a site's own job_submit.lua: keep yours, and add as its last line
--     dofile("/etc/slurm/headway.lua")
-- Your functions run first, and their refusals stand; `headway-setup slurm` installs this file under that name then.
--
-- Lua 5.1 and later.

local RUNTIME_DIR = "/run/headway"

local LEASE_PATH = RUNTIME_DIR .. "/lease"
local WAKE_PATH = RUNTIME_DIR .. "/wake"
local HOLDS_DIR = RUNTIME_DIR .. "/holds"
local HOLD_MARK = "headway:hold"
local USER_HOLD_MARK = "headway:user-hold"
local WISHES_MARK = "headway=" -- begins a word of a job's comment
local PROFILE_OFF = "headway=off"
local PIN_MARK = "headway:pinned"
local BEGIN_MARK = "headway:begin=" -- with the begin time of a job that its user submitted on hold

local NO_VAL = 4294967294
local INFINITE = 4294967295 -- as a priority in a change: release
-- Slurm's programs print this as "Job is in held state, pending scheduler release". Slurm tells Lua this name since the
-- version (23.02) that also passes log_user texts of slurm_job_modify on to the user; before, they only clutter the log.
local REFUSED = slurm.ESLURM_JOB_HELD or 2042
local USER_SEES_TEXT = slurm.ESLURM_JOB_HELD ~= nil
local RELEASE_DELAY_S = 5 -- time for the controller to hold a job that its user has just released
local MAX_LEASE_BYTES = 65536
local LONGEST_STALE_S = 86400
local MAX_COMMENT_BYTES = 1024 -- slurmctld refuses a job whose comment is longer
-- An option of the SPANK plugin (slurm/plugin/spank/headway.c), as Slurm writes it into the job's SPANK environment.
local OPTION_ENTRY = "^_SLURM_SPANK_OPTION_headway_headway_([%w_]+)=(.*)$"
local WAKE_SHARE = 4 -- we fill at most this part of the room in the wake pipe: one fourth
local HOLDS_WITHOUT_LEASE = 1000 -- holds that we write down while no lease says how many
local MOST_BEGIN_TIMES = 10000 -- jobs whose begin times we remember

-- The lease --------------------------------------------------------------------------------------------------------

-- The text of the lease, or "" when there is none that can be read.
--
-- Opening a named pipe for reading would wait for a writer; opening it for reading and writing does not, and a pipe has no
-- end to seek to. Where slurmctld may not write the lease (the controller runs as root), only root could put a pipe there.
local function lease_text()
    local file = io.open(LEASE_PATH, "r+")
    if file and not file:seek("end") then
        file:close()
        return ""
    end
    if file then
        file:seek("set")
    else
        file = io.open(LEASE_PATH, "r")
    end
    if not file then
        return ""
    end
    local text = file:read(MAX_LEASE_BYTES)
    file:close()
    return text or ""
end

-- The lease as a table, or nil when it is missing or makes no sense. `fresh` says whether anybody may rely on the controller.
local function read_lease()
    local values = {}
    for key, value in string.gmatch(lease_text(), "([%w_]+)=([^\n]*)\n") do
        values[key] = value
    end
    local written, stale_after = tonumber(values.time), tonumber(values.stale_after)
    local uid = tonumber(values.controller_uid)
    -- A longer time than the settings allow is damage: jobs would be held with no controller to place them.
    if not (written and stale_after and stale_after > 0 and stale_after <= LONGEST_STALE_S and uid and values.partitions) then
        return nil
    end
    local partitions = {}
    for name in string.gmatch(values.partitions, "[^,%s]+") do
        partitions[name] = true
    end
    return {
        partitions = partitions,
        controller_uid = uid,
        time = written,
        -- A lease from the future is stale too: the clock may have been set back after the controller died.
        fresh = math.abs(os.time() - written) <= stale_after,
        wake_room = tonumber(values.wake_room_bytes) or 0,
        holds_room = tonumber(values.holds_room),
    }
end

local function fresh_lease()
    local lease = read_lease()
    return lease and lease.fresh and lease or nil
end

-- The wake pipe ----------------------------------------------------------------------------------------------------

local beat_seen = nil -- the lease that wake_written counts from
local wake_written = 0 -- bytes that we have written since that lease

-- Writes one line to the controller; whether it was written.
--
-- Opening a pipe for reading and writing never blocks, and creates nothing when it is not there. Writing does block once
-- the pipe is full, which a controller that hangs would let happen, and Lua has no way to ask first. So each lease tells
-- how much room there was in the pipe, and until the next one we take no more than our share of it. A line that is left
-- out wakes nobody less: lines that the controller has not read yet are waiting there.
local function wake(lease, line)
    if lease.time ~= beat_seen then
        beat_seen, wake_written = lease.time, 0
    end
    local text = line .. "\n"
    if (wake_written + #text) * WAKE_SHARE > lease.wake_room then
        return false
    end
    local pipe = io.open(WAKE_PATH, "r+")
    if not pipe then
        return false
    end
    wake_written = wake_written + #text
    local written = pipe:write(text)
    local closed = pipe:close()
    return (written and closed) and true or false
end

-- Holds of users ---------------------------------------------------------------------------------------------------
--
-- Slurm lets a user's change not touch the admin comment, and a hold of a job that has priority 0 changes nothing that Slurm
-- shows. So every such hold is a file in HOLDS_DIR, named by the job, before Slurm hears that we accept it. The controller,
-- or the watchdog in its absence, makes it the user's hold; the controller then removes the file.

local holds_beat = nil -- the lease that holds_written counts from
local holds_written = 0 -- holds written down since that lease

-- Whether one more hold may be written down: the controller says in its lease how many there is room for.
local function room_for_a_hold(lease)
    local beat = lease and lease.time or 0
    if beat ~= holds_beat then
        holds_beat, holds_written = beat, 0
    end
    return holds_written < (lease and lease.holds_room or HOLDS_WITHOUT_LEASE)
end

-- Where the hold of a job is written down; nil for what is no job's id.
local function hold_path(id)
    return string.match(id, "^[%d_]+$") and HOLDS_DIR .. "/" .. id
end

-- Write down a user's hold; whether that was done. The file comes into its place as a whole, whatever lay there.
local function write_hold(lease, id)
    local path, draft = hold_path(id), HOLDS_DIR .. "/.new"
    local there = path and io.open(path, "r+")
    if there then
        there:close()
    elseif not (path and room_for_a_hold(lease)) then
        return false
    end
    os.remove(draft)
    local file = io.open(draft, "w")
    if not file then
        return false
    end
    if not (file:close() and os.rename(draft, path)) then
        return false
    end
    if not there then
        holds_written = holds_written + 1
    end
    return true
end

-- The user takes a hold back that nobody has seen to yet; whether there was one.
local function remove_hold(id)
    local path = hold_path(id)
    return path and os.remove(path) and true or false
end

-- What a job is ----------------------------------------------------------------------------------------------------

-- Whether a request such as "gres:gpu:a100:2,gres:nic:1" (older Slurm) or "gres/gpu=2" (newer) names at least one GPU.
local function names_gpus(request)
    for item in string.gmatch(request or "", "[^,]+") do
        local rest = string.match(item, "^gres[:/](.*)$") or item
        local name = string.match(rest, "^[^:=]*")
        local count = string.match(rest, "[:=](%d+)[^:=]*$")
        if string.lower(name) == "gpu" and (count == nil or tonumber(count) > 0) then
            return true
        end
    end
    return false
end

local function wants_gpus(job)
    return names_gpus(job.tres_per_node)
        or names_gpus(job.tres_per_job)
        or names_gpus(job.tres_per_task)
        or names_gpus(job.tres_per_socket)
        or names_gpus(job.gres)
end

local function default_partition(part_list)
    for name, partition in pairs(part_list) do
        local flag = partition.flag_default
        if flag == true or flag == 1 then
            return name
        end
    end
    return nil
end

-- Whether every partition that the job may run in is managed: Slurm would start it in the others by itself.
local function in_managed_partitions(job, part_list, lease)
    local wanted = job.partition
    if wanted == nil or wanted == "" then
        wanted = default_partition(part_list)
    end
    local any = false
    for name in string.gmatch(wanted or "", "[^,%s]+") do
        if not lease.partitions[name] then
            return false
        end
        any = true
    end
    return any
end

local function is_set(number)
    return number ~= nil and number ~= NO_VAL and number ~= INFINITE
end

-- Part of a heterogeneous job: its parts start together, which only Slurm can arrange.
local function is_het(job)
    return is_set(job.het_job_offset) or is_set(job.pack_job_offset)
end

local function is_time(number)
    return is_set(number) and number ~= 0
end

local function is_batch(job)
    return job.script ~= nil and job.script ~= ""
end

-- scrontab jobs are left to Slurm: it lets nobody change them, so they cannot be placed.
local function is_managed(job, part_list, lease)
    return is_batch(job)
        and wants_gpus(job)
        and not is_het(job)
        and not job.cron_job
        and in_managed_partitions(job, part_list, lease)
end

-- Admin comment ----------------------------------------------------------------------------------------------------

local function has_mark(comment, mark)
    for token in string.gmatch(comment or "", "%S+") do
        if token == mark then
            return true
        end
    end
    return false
end

local function with_mark(comment, mark)
    if comment == nil or comment == "" then
        return mark
    end
    if has_mark(comment, mark) then
        return comment
    end
    return comment .. " " .. mark
end

-- Wishes -----------------------------------------------------------------------------------------------------------
--
-- A job's comment may hold words such as "headway=preemptible+max-gpus:8" among the user's own. What is asked for by an
-- option of the SPANK plugin becomes such a word, whether the controller is there or not: all others read the comment alone.

-- What a wish is about: "min-gpus" of "min-gpus:2".
local function subject(wish)
    return string.match(wish, "^[^:]*")
end

-- The wishes of a comment, by subject: of several the last counts.
local function wishes_in(comment)
    local wishes = {}
    for word in string.gmatch(comment or "", "%S+") do
        if string.sub(word, 1, #WISHES_MARK) == WISHES_MARK then
            for wish in string.gmatch(string.sub(word, #WISHES_MARK + 1), "[^+]+") do
                wishes[subject(wish)] = wish
            end
        end
    end
    return wishes
end

-- The wishes that options ask for, as a list. The plugin has looked at the values, but anybody can write that environment:
-- what is no value of ours is left out.
local function wishes_by_options(job)
    local given, wishes = {}, {}
    for _, entry in pairs(job.spank_job_env or {}) do
        local option, value = string.match(entry, OPTION_ENTRY)
        if option then
            given[option] = value
        end
    end
    if given.profile == "off" then
        table.insert(wishes, "off")
    end
    if given.preemptible then
        table.insert(wishes, "preemptible")
    end
    for _, bound in ipairs({ "min", "max" }) do
        local gpus = string.match(given[bound .. "_gpus"] or "", "^0*([1-9]%d*)$")
        if gpus and #gpus <= 6 then
            table.insert(wishes, bound .. "-gpus:" .. gpus)
        end
    end
    return wishes
end

local function note_options(job)
    local there, missing = wishes_in(job.comment), {}
    for _, wish in ipairs(wishes_by_options(job)) do
        if there[subject(wish)] ~= wish then
            table.insert(missing, wish)
        end
    end
    if #missing == 0 then
        return slurm.SUCCESS
    end
    local comment = WISHES_MARK .. table.concat(missing, "+")
    if job.comment ~= nil and job.comment ~= "" then
        comment = job.comment .. " " .. comment
    end
    if #comment > MAX_COMMENT_BYTES then
        slurm.log_user(
            "%s",
            string.format(
                "Headway: the job is submitted without %s, for which there is no room in its comment: shorten --comment by %d bytes.",
                table.concat(missing, ", "), #comment - MAX_COMMENT_BYTES
            )
        )
        return slurm.SUCCESS
    end
    job.comment = comment
    return slurm.SUCCESS
end

-- Who wants no profile: on the nodes no Slurm tells the comment, so TaskProlog reads this variable. For srun and salloc,
-- whose environment does not come by here, the plugin or the user sets it.
local function pass_on_opt_out(job)
    local off = string.find(job.comment or "", PROFILE_OFF, 1, true)
        or wishes_in(job.comment).off
        or wishes_by_options(job)[1] == "off"
    if off and is_batch(job) and job.environment then
        job.environment.HEADWAY_PROFILE = "off"
    end
    return slurm.SUCCESS
end

-- Submission -------------------------------------------------------------------------------------------------------

local function submit(job, part_list)
    local lease = fresh_lease()
    if not lease or not is_managed(job, part_list, lease) then
        return slurm.SUCCESS
    end
    if job.priority == 0 then -- the user's own --hold
        job.admin_comment = with_mark(job.admin_comment, USER_HOLD_MARK)
        if is_time(job.begin_time) then
            job.admin_comment = with_mark(job.admin_comment, BEGIN_MARK .. string.format("%.0f", job.begin_time))
        end
        return slurm.SUCCESS
    end
    job.admin_comment = with_mark(job.admin_comment, HOLD_MARK)
    job.priority = 0
    wake(lease, "submit")
    return slurm.SUCCESS
end

-- Changes ----------------------------------------------------------------------------------------------------------

-- The id that users see: "12", or "12_3" for one task of an array.
local function shown_id(record)
    local task = record.array_task_id
    if is_set(record.array_job_id) and record.array_job_id ~= 0 and is_set(task) then
        return string.format("%.0f_%.0f", record.array_job_id, task)
    end
    return string.format("%.0f", record.job_id)
end

local function refuse(text, ...)
    local message = string.format(text, ...)
    if USER_SEES_TEXT then
        slurm.log_user("%s", message)
    else
        slurm.log_info("headway: refused: %s", message)
    end
    return REFUSED
end

-- A release, a priority, or a nice value: Slurm (priority/basic) works out a new priority after a change of nice, and
-- that takes a hold off as well.
local function would_release(job)
    return job.priority == INFINITE or is_set(job.priority) or is_set(job.nice)
end

local function note_hold(lease, id)
    if not write_hold(lease, id) then
        return false
    end
    if lease and lease.fresh then
        wake(lease, "user-hold " .. id)
    end
    return true
end

-- Slurm itself does nothing when a user holds a job that is held already, so an accepted hold that nobody writes down would be
-- a promise that nobody keeps: it is refused then, also while the controller is away.
local function hold_for_user(lease, id)
    if note_hold(lease, id) then
        return slurm.SUCCESS
    end
    return refuse("Headway cannot write down your hold of job %s just now: try again in a few seconds.", id)
end

local function modify_held_by_headway(lease, job, record)
    local id = shown_id(record)
    if job.priority == INFINITE and not has_mark(record.admin_comment, USER_HOLD_MARK) and remove_hold(id) then
        job.priority = NO_VAL -- the release took the user's own hold back; the job goes on waiting for its nodes
        wake(lease, "user-release " .. id)
        return slurm.SUCCESS
    end
    if would_release(job) then
        return refuse(
            "Job %s waits for Headway to choose its nodes and then starts by itself: no need to release it or change its "
                .. "priority. `headway why %s` tells what it waits for. (If you have just put it on hold: try again in a few seconds.)",
            id, id
        )
    end
    if is_time(job.begin_time) then
        return refuse(
            "The begin time of job %s belongs to Headway while it chooses the job's nodes. To start later: `scontrol hold %s` "
                .. "now and `scontrol release %s` then, or cancel the job and submit it again with --begin.",
            id, id, id
        )
    end
    return slurm.SUCCESS
end

-- Begin times that users gave jobs on hold, by job id. Slurm tells Lua no job's begin time, and lets a user's change not
-- touch the admin comment, so what was wished for at submission stands there, and what came later stands here.
local begin_wished = {}
local begins_wished = 0

local function forget_begin(job_id)
    if begin_wished[job_id] then
        begin_wished[job_id] = nil
        begins_wished = begins_wished - 1
    end
end

-- Remember a begin time. Lua does not hear of jobs that end: times that have passed are forgotten when there are too many, and
-- if that is not enough, so is any other.
local function remember_begin(job_id, time)
    forget_begin(job_id)
    if begins_wished >= MOST_BEGIN_TIMES then
        for other, begin in pairs(begin_wished) do
            if begin <= os.time() then
                forget_begin(other)
            end
        end
    end
    if begins_wished >= MOST_BEGIN_TIMES then
        forget_begin((next(begin_wished)))
    end
    begin_wished[job_id] = time
    begins_wished = begins_wished + 1
end

local function begin_time_of(job, record)
    if is_time(job.begin_time) then
        return job.begin_time
    end
    local submitted = string.match(record.admin_comment or "", BEGIN_MARK .. "(%d+)")
    return begin_wished[record.job_id] or tonumber(submitted) or 0
end

-- The user takes the own hold off. Slurm would start the job where it likes, so it gets a begin time a little ahead, by
-- when the controller has taken the job over; if the controller is away the job starts then by itself.
local function modify_held_by_user(lease, job, record)
    if not would_release(job) or job.priority == 0 then
        if is_time(job.begin_time) then
            remember_begin(record.job_id, job.begin_time)
        end
        return slurm.SUCCESS
    end
    job.begin_time = math.max(begin_time_of(job, record), os.time() + RELEASE_DELAY_S)
    forget_begin(record.job_id)
    wake(lease, "user-release " .. shown_id(record))
    return slurm.SUCCESS
end

-- Slurm asks here before it looks whether the one who asks may change the job at all. So only what the job's own user asks for
-- is a user's wish; root's, the controller's and operators' changes pass, and everybody else's Slurm refuses by itself.
--
-- No file is looked at for other changes: opening one that is not there leaves an error number behind, which Slurm (22.05)
-- takes for its own when it changes a job's partition.
local function modify(job, record, uid)
    if uid ~= record.user_id or uid == 0 or not (job.priority == 0 or would_release(job) or is_time(job.begin_time)) then
        return slurm.SUCCESS
    end
    local lease = read_lease()
    if lease and uid == lease.controller_uid then
        return slurm.SUCCESS
    end
    local id, comment = shown_id(record), record.admin_comment
    local by_headway, by_user = has_mark(comment, HOLD_MARK), has_mark(comment, USER_HOLD_MARK)
    -- A placed job with priority 0 is one that Slurm has put on hold by itself, for as long as nobody changes it.
    local impossible = record.priority == 0 and has_mark(comment, PIN_MARK)
    if job.priority == 0 and (by_headway or impossible) then
        return hold_for_user(lease, id)
    end
    -- Without a controller Slurm keeps such a hold by itself: to write it down would take the room of those that it cannot keep.
    if job.priority == 0 and lease and lease.fresh and wants_gpus(record) and in_managed_partitions(record, {}, lease) then
        note_hold(lease, id) -- the controller may be about to take the job over, by a hold that hides this one
    end
    if by_headway and record.priority == 0 and lease and lease.fresh then
        return modify_held_by_headway(lease, job, record)
    end
    if would_release(job) and job.priority ~= 0 then
        remove_hold(id)
    end
    if by_user and record.priority == 0 and lease and lease.fresh then
        return modify_held_by_user(lease, job, record)
    end
    return slurm.SUCCESS
end

-- What slurmctld calls ---------------------------------------------------------------------------------------------

-- Functions of the script that loaded this one, if one did; never those of an earlier load of this file.
local others = {}
if not headway_job_submit then
    others.submit, others.modify = slurm_job_submit, slurm_job_modify
else
    others = headway_job_submit.others
end
headway_job_submit = { version = 4, others = others }

-- Runs ours; an error in it is logged, and lets the job through.
local function guarded(what, call, ...)
    local ok, result = pcall(call, ...)
    if ok then
        return result
    end
    pcall(slurm.log_error, "headway: %s: %s; the job passes untouched", what, tostring(result))
    return slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    if others.submit then
        local result = others.submit(job_desc, part_list, submit_uid)
        if result ~= slurm.SUCCESS then
            return result
        end
    end
    guarded("options", note_options, job_desc)
    guarded("opt-out", pass_on_opt_out, job_desc)
    return guarded("job_submit", submit, job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if others.modify then
        local result = others.modify(job_desc, job_rec, part_list, modify_uid)
        if result ~= slurm.SUCCESS then
            return result
        end
    end
    return guarded("job_modify", modify, job_desc, job_rec, modify_uid)
end

return slurm.SUCCESS
