-- Headway job_submit.lua, version 11
--
-- Loaded by slurmctld (JobSubmitPlugins=lua) from the folder of slurm.conf; installed by `headway-setup slurm --apply`.
-- It holds the batch jobs that Headway schedules until Headway has chosen their nodes, and keeps users from releasing them.
-- It also copies the --headway-... options (of the SPANK plugin) into the comment of the job.
--
-- Fail-open: the script reads everything that it knows from the controller's lease, a file that is rewritten every second.
-- When the lease is missing, stale or damaged, or when this script fails, the job passes as if Headway did not exist.
-- The script runs inside slurmctld while slurmctld is locked, so it must never wait: see wake() and lease_text().
--
-- A site with its own job_submit.lua keeps it, and adds as its last line, but before a final `return`,
--     dofile("/etc/slurm/headway.lua")
-- The site's functions run first, and what they refuse stays refused. `headway-setup slurm` then installs this file under
-- that name.
--
-- Slurm loads one script, so everything is in this file. It needs Lua 5.1 or later.

local RUNTIME_DIR = "/run/headway"

local LEASE_PATH = RUNTIME_DIR .. "/lease"
local WAKE_PATH = RUNTIME_DIR .. "/wake"
local HOLDS_DIR = RUNTIME_DIR .. "/holds"
local HOLD_MARK = "headway:hold"
local USER_HOLD_MARK = "headway:user-hold"
local OPTIONS_PREFIX = "headway=" -- first characters of a word in the comment of a job
local PROFILE_OFF = "headway=off"
local PIN_MARK = "headway:pinned"
local BEGIN_MARK = "headway:begin=" -- followed by the begin time of a job that was submitted on hold
local CHECK_MARK = "headway:check=" -- followed by the begin time that this script gave to a job which Slurm checks
local BIRTHMARK = "headway:id=" -- followed by a word that tells the job from others that get its id later

local NO_VAL = 4294967294
local INFINITE = 4294967295 -- as a priority in a change: release
-- Slurm's programs print this as "Job is in held state, pending scheduler release". Lua knows the name since Slurm 23.02, the
-- release that also shows the log_user texts of slurm_job_modify to the user; before, they only fill the log.
local REFUSED = slurm.ESLURM_JOB_HELD or 2042
local USER_SEES_TEXT = slurm.ESLURM_JOB_HELD ~= nil
local TAKEOVER_S = 5 -- time that the controller has to hold a job whose begin time it leaves as it is
-- The same for a job whose begin time it ends. Long enough for a restart of slurmctld or of the controller meanwhile: a job whose begin
-- time has passed when slurmctld starts gets nodes that have not registered yet, and on 22.05 none of their GPUs.
local CHECKED_TAKEOVER_S = 30
local MOST_CHECKS = 20 -- most jobs that Slurm checks until the next lease because of their conditions; the controller holds each
local MAX_LEASE_BYTES = 65536
local LONGEST_STALE_S = 86400
local MOST_GPUS = 1000000 -- largest number in min-gpus and max-gpus
local MAX_SHOWN_BYTES = 200 -- longest list of unknown options in a message
local MAX_COMMENT_BYTES = 1024 -- slurmctld refuses a job whose comment is longer
local NO_VAL16 = 65534
local MOST_MIB = 2 ^ 53 -- a larger value of pn_min_memory is none, or counts by CPU
-- One option of the SPANK plugin (slurm/plugin/spank/headway.c) in the SPANK environment of a job.
local OPTION_ENTRY = "^_SLURM_SPANK_OPTION_headway_headway_([%w_]+)=(.*)$"
local WAKE_SHARE = 4 -- this script fills at most one fourth of the free room in the wake pipe
local HOLDS_WITHOUT_LEASE = 1000 -- most files of holds while no lease gives a number
local MOST_BEGIN_TIMES = 10000 -- most jobs whose begin times are kept
local MOST_BIRTHMARK = 16 -- longest word of a birthmark; new ones have 8 characters

-- The lease --------------------------------------------------------------------------------------------------------

-- Return the text of the lease; "" when it cannot be read.
--
-- Somebody may have put a named pipe in the place of the lease. Opening a pipe for reading waits for a writer; opening it for
-- reading and writing does not, and seek() fails on it. Where slurmctld may not write the lease (the controller runs as
-- root), only root could put a pipe there.
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

local SIZE = "([^:,%s]+):(%d+):(%d+):(%d+):(%d+):([^,%s]*)"

-- Return the resources of a node: GPUs, CPUs, MiB, and GPUs by type ("a100=4+h100=4").
local function resources(gpus, cpus, mib, types)
    local by_type = {}
    for kind, count in string.gmatch(types, "([^+=]+)=(%d+)") do
        by_type[kind] = tonumber(count)
    end
    return { gpus = tonumber(gpus), cpus = tonumber(cpus), mib = tonumber(mib), by_type = by_type }
end

-- Return the sizes of partitions. "dl:32:8:64:256000:a100=4+h100=4,..." gives the GPUs of all nodes of the partition; the most
-- GPUs, CPUs and MiB of a node; and the most GPUs of each type. The kinds of its nodes have the same form, with the number of
-- such nodes in the place of all GPUs; without any, they are not known.
local function sizes_in(text, kinds)
    local sizes = {}
    for name, all_gpus, gpus, cpus, mib, types in string.gmatch(text or "", SIZE) do
        sizes[name] = resources(gpus, cpus, mib, types)
        sizes[name].all_gpus = tonumber(all_gpus)
        sizes[name].kinds = {}
    end
    for name, num_nodes, gpus, cpus, mib, types in string.gmatch(kinds or "", SIZE) do
        local kind = resources(gpus, cpus, mib, types)
        kind.num_nodes = tonumber(num_nodes)
        if sizes[name] then
            table.insert(sizes[name].kinds, kind)
        end
    end
    return sizes
end

-- Return the lease as a table; nil when it is missing or damaged. `fresh` is true while the controller is alive.
local function read_lease()
    local values = {}
    for key, value in string.gmatch(lease_text(), "([%w_]+)=([^\n]*)\n") do
        values[key] = value
    end
    local written, stale_after = tonumber(values.time), tonumber(values.stale_after)
    local uid = tonumber(values.controller_uid)
    -- A longer time than the settings allow means damage: jobs would be held without a controller that places them.
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
        -- A lease from the future is stale too: the clock may have been set back after the death of the controller.
        fresh = math.abs(os.time() - written) <= stale_after,
        wake_room = tonumber(values.wake_room_bytes) or 0,
        holds_room = tonumber(values.holds_room),
        nice_keeps_holds = values.nice_keeps_holds == "1",
        sizes = sizes_in(values.sizes, values.kinds),
    }
end

local function fresh_lease()
    local lease = read_lease()
    return lease and lease.fresh and lease or nil
end

-- The wake pipe ----------------------------------------------------------------------------------------------------

local beat_seen = nil -- time of the lease since which wake_written counts
local wake_written = 0 -- bytes written since that lease

-- Write one line into the controller's wake pipe. Return whether it was written.
--
-- Opening a pipe for reading and writing never blocks, and creates nothing when the pipe does not exist. Writing blocks once
-- the pipe is full, which happens when the controller hangs, and Lua cannot ask for the free room. So each lease gives the
-- free room, and until the next lease this script writes at most a fourth of it. Leaving a line out does no harm: the pipe
-- then holds unread lines, which wake the controller as well.
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

-- Return the word of a job's birthmark, nil without one. The last one counts: a site's script may have copied the comment of a job.
local function birthmark_of(comment)
    local born
    for token in string.gmatch(comment or "", "%S+") do
        if string.sub(token, 1, #BIRTHMARK) == BIRTHMARK then
            born = string.match(token, "^[0-9a-z]+$", #BIRTHMARK + 1)
        end
    end
    return born and #born <= MOST_BIRTHMARK and born or nil
end

local born_jobs = 0 -- submissions with a birthmark since slurmctld loaded this script

-- Return a number in base 36, its last digits only.
local function in_base_36(number, digits)
    local text = ""
    for _ = 1, digits do
        local digit = number % 36
        text = string.char(digit < 10 and 48 + digit or 87 + digit) .. text
        number = (number - digit) / 36
    end
    return text
end

-- Return the word of a new birthmark. Its first half is the time: it comes again after two years. Should slurmctld issue an id twice
-- within a second, or the clock be set back, the second half still tells the jobs apart: it comes from the address of a new table,
-- the CPU time of slurmctld and a counter. Lua's own random numbers are the same after every start.
local function new_birthmark()
    born_jobs = born_jobs + 1
    local address = tonumber(string.match(tostring({}), "%x+$") or "0", 16) or 0
    local chance = math.floor(address / 16) + math.floor(os.clock() * 1000000) + born_jobs * 7919
    return in_base_36(os.time(), 5) .. in_base_36(chance, 3)
end

-- Mark a job at its submission. Other marks go when they have had their effect, the birthmark stays.
local function mark_new(job, mark)
    job.admin_comment = with_mark(with_mark(job.admin_comment, BIRTHMARK .. new_birthmark()), mark)
end

-- Holds of users ---------------------------------------------------------------------------------------------------
--
-- A change by a user cannot set the admin comment, and a hold of a job that has priority 0 already changes nothing that Slurm
-- shows. So this script writes each such hold as a file in HOLDS_DIR, named after the job, before it accepts the change. The
-- controller, or the watchdog while the controller is away, turns the file into a hold of the user and removes it. The file has the
-- job's submit time, restarts, user and birthmark: after a crash of slurmctld another job may have its id.

local holds_beat = nil -- time of the lease since which holds_written counts
local holds_written = 0 -- files of holds written since that lease

-- Return whether one more hold may be written: the lease gives the number.
local function room_for_a_hold(lease)
    local beat = lease and lease.time or 0
    if beat ~= holds_beat then
        holds_beat, holds_written = beat, 0
    end
    return holds_written < (lease and lease.holds_room or HOLDS_WITHOUT_LEASE)
end

-- Return the path of the file for the hold of a job; nil when `id` is not the id of a job.
local function hold_path(id)
    return string.match(id, "^[%d_]+$") and HOLDS_DIR .. "/" .. id
end

-- Return what tells a job from another one that gets its id later; empty where Slurm does not say it. A job that was submitted
-- without a controller, or under an earlier version of this script, has no birthmark.
local function identity(record)
    local submitted, restarts = tonumber(record.submit_time), tonumber(record.restart_cnt) or 0
    if not submitted then
        return ""
    end
    local born = birthmark_of(record.admin_comment)
    return string.format("%d %d %d", submitted, restarts, record.user_id) .. (born and " " .. born or "") .. "\n"
end

-- Write the hold of a user to its file. Return whether that was done. The file appears in one step.
local function write_hold(lease, id, record)
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
    local written = file:write(identity(record))
    if not (file:close() and written and os.rename(draft, path)) then
        return false
    end
    if not there then
        holds_written = holds_written + 1
    end
    return true
end

-- Remove the hold of a user that the controller has not handled yet. Return whether there was one.
local function remove_hold(id)
    local path = hold_path(id)
    return path and os.remove(path) and true or false
end

-- What a job is ----------------------------------------------------------------------------------------------------

-- Return whether a request such as "gres:gpu:a100:2,gres:nic:1" (older Slurm) or "gres/gpu=2" (newer) names at least one GPU.
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

-- Return an iterator over the partitions in which the job may run.
local function wanted_partitions(job, part_list)
    local wanted = job.partition
    if wanted == nil or wanted == "" then
        wanted = default_partition(part_list)
    end
    return string.gmatch(wanted or "", "[^,%s]+")
end

-- Return whether Headway manages every partition in which the job may run: in any other one Slurm would start the job itself.
local function in_managed_partitions(job, part_list, lease)
    local any = false
    for name in wanted_partitions(job, part_list) do
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

-- Return whether the job is part of a heterogeneous job: the parts start together, which only Slurm can arrange.
local function is_het(job)
    return is_set(job.het_job_offset) or is_set(job.pack_job_offset)
end

local function is_time(number)
    return is_set(number) and number ~= 0
end

local function is_batch(job)
    return job.script ~= nil and job.script ~= ""
end

-- Return whether Headway schedules the job. Jobs of scrontab are left to Slurm, which refuses every change of them.
local function is_managed(job, part_list, lease)
    return is_batch(job)
        and wants_gpus(job)
        and not is_het(job)
        and not job.cron_job
        and in_managed_partitions(job, part_list, lease)
end

-- Size of a job ----------------------------------------------------------------------------------------------------
--
-- slurmctld checks at the submission whether nodes can ever run a job, but not for a job on hold. So a job that is larger than
-- every node, or than its partition, is not held but left to this check: see check_by_slurm().

-- Return the number and the type of the GPUs in one item of a request: 2, "a100" for "gres:gpu:a100:2". The number is nil if the
-- item is not understood, and 0 for other resources.
local function gpus_of(item)
    local rest = string.match(item, "^gres[:/](.*)$") or item
    if string.lower(string.match(rest, "^[^:=]*")) ~= "gpu" then
        return 0, nil
    end
    local words = string.match(rest, "^[^:=]*[:=]?(.*)$")
    if words == "" then
        return 1, nil
    end
    if string.match(words, "^%d+$") then
        return tonumber(words), nil
    end
    local kind, count = string.match(words, "^([^:=]+)[:=](%d+)$")
    if kind then
        return tonumber(count), kind
    end
    return string.match(words, "^[^:=]+$") and 1, words
end

-- Return the GPUs of a request in all, and by type; nil if it is not understood.
local function gpus_in(request)
    local total, by_type = 0, {}
    for item in string.gmatch(request or "", "[^,]+") do
        local count, kind = gpus_of(item)
        if not count then
            return nil
        end
        total = total + count
        if kind then
            by_type[kind] = (by_type[kind] or 0) + count
        end
    end
    return total, by_type
end

-- Return whether a request for one node or task names more GPUs than the largest node of a partition has, in all or of a type.
local function exceeds_gpus(request, size)
    local total, by_type = gpus_in(request)
    for kind, count in pairs(by_type or {}) do
        if count > (size.by_type[kind] or 0) then
            return true
        end
    end
    return total ~= nil and total > size.gpus
end

-- Return whether a request for the whole job names more GPUs than a partition has, or a type that it lacks.
local function exceeds_all_gpus(job, size)
    local total, by_type = gpus_in(job.tres_per_job)
    for kind in pairs(by_type or {}) do
        if not size.by_type[kind] then
            return true
        end
    end
    return total ~= nil and total > (job.max_nodes == 1 and size.gpus or size.all_gpus)
end

-- Return whether a number of CPUs is given and is larger than the limit.
local function exceeds(number, limit)
    return is_set(number) and number < NO_VAL16 and number > limit
end

-- Return whether all tasks must be on one node that has too few CPUs for them.
local function exceeds_cpus(job, size)
    local tasks, each = job.num_tasks, job.cpus_per_task
    if exceeds(each, size.cpus) or exceeds(job.pn_min_cpus, size.cpus) then
        return true
    end
    if job.max_nodes ~= 1 or not exceeds(tasks, 0) or job.overcommit == 1 then
        return false
    end
    return tasks * (exceeds(each, 0) and each or 1) > size.cpus
end

-- Return whether a node with these resources is too small for any part of the job.
local function exceeds_node(job, node)
    local mib = job.pn_min_memory
    return exceeds_gpus(job.tres_per_node or job.gres, node)
        or exceeds_gpus(job.tres_per_task, node)
        or (job.max_nodes == 1 and exceeds_gpus(job.tres_per_job, node))
        or (node.gpus == 0 and names_gpus(job.tres_per_job)) -- each node of the job has at least one of its GPUs
        or exceeds_cpus(job, node)
        or (type(mib) == "number" and mib < MOST_MIB and mib > node.mib)
end

-- Return whether fewer nodes of a partition are large enough than the job has at least.
local function exceeds_kinds(job, size)
    local found = 0
    for _, kind in ipairs(size.kinds) do
        if not exceeds_node(job, kind) then
            found = found + kind.num_nodes
        end
    end
    return #size.kinds > 0 and found < (is_set(job.min_nodes) and job.min_nodes or 1)
end

local function is_larger_than(job, size)
    return exceeds_node(job, size) or exceeds_all_gpus(job, size) or exceeds_kinds(job, size)
end

-- Return whether the job is too large for each partition in which it may run.
local function is_too_large(job, part_list, lease)
    for name in wanted_partitions(job, part_list) do
        local size = lease.sizes[name]
        if not (size and is_larger_than(job, size)) then
            return false
        end
    end
    return true
end

-- Conditions of a job ----------------------------------------------------------------------------------------------
--
-- Sizes do not show whether nodes with certain features, names or free disks can run a job. So a job with such conditions is left
-- to Slurm's check as well. The controller then has to hold each of them, so only some jobs in each lease are checked.

local checks_beat = nil -- time of the lease since which checks_made counts
local checks_made = 0 -- jobs with conditions that were left to Slurm's check since that lease

local function is_text(value)
    return type(value) == "string" and value ~= ""
end

-- Return the number, or 0 if it is not given.
local function given(number)
    return is_set(number) and number < NO_VAL16 and number or 0
end

-- Return whether nodes must have more CPUs than the tasks on them, where the GPUs of the job are counted by task or in all. Newer
-- releases of Slurm (seen on 26.05.5) give such a job no CPUs beside those of its tasks, so no nodes can run it there.
local function has_cpus_beside_tasks(job)
    if not (is_text(job.tres_per_job) or is_text(job.tres_per_task)) then
        return false
    end
    local nodes, each = math.max(given(job.min_nodes), 1), math.max(given(job.cpus_per_task), 1)
    local tasks = given(job.num_tasks) > 0 and job.num_tasks or nodes -- without a number of tasks each node has one
    local cpus, on_each = given(job.pn_min_cpus), given(job.ntasks_per_node)
    return cpus * nodes > tasks * each or (on_each > 0 and cpus > on_each * each)
end

-- Return whether the job restricts its nodes by other values than numbers of GPUs, CPUs and MiB for each node.
local function has_conditions(job)
    return is_text(job.features)
        or is_text(job.req_nodes)
        or is_text(job.exc_nodes)
        or is_text(job.reservation)
        or is_text(job.mem_per_tres)
        or (is_set(job.min_mem_per_cpu) and job.min_mem_per_cpu > 0)
        or (is_set(job.pn_min_tmp_disk) and job.pn_min_tmp_disk > 0)
        or has_cpus_beside_tasks(job)
end

-- Return whether the job has more nodes, CPUs or GPUs in all than the partition, or more CPUs on a node than its limit.
local function exceeds_partition(job, partition, size)
    local nodes, each = job.min_nodes, math.max(given(job.cpus_per_task), 1)
    local cpus = math.max(each, given(job.pn_min_cpus), given(job.ntasks_per_node) * each)
    if is_set(nodes) and nodes > (partition.total_nodes or nodes) then
        return true
    end
    if is_set(job.min_cpus) and job.min_cpus > (partition.total_cpus or job.min_cpus) then
        return true
    end
    local most = partition.max_cpus_per_node
    if is_set(most) and most > 0 and cpus > most then
        return true
    end
    local gpus = gpus_in(job.tres_per_node or job.gres)
    return size ~= nil and (cpus > size.cpus or (is_set(nodes) and gpus ~= nil and nodes * gpus > size.all_gpus))
end

-- Return whether the GPUs that the job has in all need more nodes than it has tasks. Newer releases of Slurm (seen on 26.05.5) put a
-- job on no more nodes than it has tasks.
local function has_few_tasks(job, size)
    local tasks, total = given(job.num_tasks), gpus_in(job.tres_per_job)
    return tasks > 0 and total ~= nil and total > tasks * size.gpus
end

-- Return whether only Slurm can tell that nodes can run the job. Each of several partitions has nodes and limits of its own.
local function is_in_doubt(job, part_list, lease)
    local names = wanted_partitions(job, part_list)
    local name, another = names(), names()
    local size = lease.sizes[name]
    return another ~= nil
        or has_conditions(job)
        or exceeds_partition(job, part_list[name] or {}, size)
        or (size ~= nil and has_few_tasks(job, size))
end

-- Count one more job that Slurm checks because of its conditions. Return whether it may be left to the check.
local function take_check(lease)
    if lease.time ~= checks_beat then
        checks_beat, checks_made = lease.time, 0
    end
    checks_made = checks_made + 1
    return checks_made <= MOST_CHECKS
end

-- Options of the user ----------------------------------------------------------------------------------------------
--
-- The comment of a job may hold words such as "headway=preemptible+max-gpus:8" among the user's own. The options of the SPANK
-- plugin become such a word, whether or not the controller is there: the controller and the agents read the comment only.

-- Return the name of an option: "min-gpus" for "min-gpus:2".
local function option_name(option)
    return string.match(option, "^[^:]*")
end

-- Return the options in a comment, by name. When a name occurs several times, the last one counts.
local function options_in(comment)
    local options = {}
    for word in string.gmatch(comment or "", "%S+") do
        if string.sub(word, 1, #OPTIONS_PREFIX) == OPTIONS_PREFIX then
            for option in string.gmatch(string.sub(word, #OPTIONS_PREFIX + 1), "[^+]+") do
                options[option_name(option)] = option
            end
        end
    end
    return options
end

-- Return the options that were given to the SPANK plugin, as a list. The plugin has checked the values, but any user can write
-- that environment, so invalid values are left out.
local function options_from_spank(job)
    local given, options = {}, {}
    for _, entry in pairs(job.spank_job_env or {}) do
        local option, value = string.match(entry, OPTION_ENTRY)
        if option then
            given[option] = value
        end
    end
    if given.profile == "off" then
        table.insert(options, "off")
    end
    if given.preemptible then
        table.insert(options, "preemptible")
    end
    for _, bound in ipairs({ "min", "max" }) do
        local gpus = string.match(given[bound .. "_gpus"] or "", "^0*([1-9]%d*)$")
        if gpus and #gpus <= 6 then
            table.insert(options, bound .. "-gpus:" .. gpus)
        end
    end
    return options
end

-- Add the options of the SPANK plugin to the comment of the job.
local function add_options_to_comment(job)
    local present, missing = options_in(job.comment), {}
    for _, option in ipairs(options_from_spank(job)) do
        if present[option_name(option)] ~= option then
            table.insert(missing, option)
        end
    end
    if #missing == 0 then
        return slurm.SUCCESS
    end
    local comment = OPTIONS_PREFIX .. table.concat(missing, "+")
    if job.comment ~= nil and job.comment ~= "" then
        comment = job.comment .. " " .. comment
    end
    if #comment > MAX_COMMENT_BYTES then
        slurm.log_user(
            "%s",
            string.format(
                "Headway: the job is submitted without %s, because its comment has no room for it. Shorten --comment by %d bytes.",
                table.concat(missing, ", "), #comment - MAX_COMMENT_BYTES
            )
        )
        return slurm.SUCCESS
    end
    job.comment = comment
    return slurm.SUCCESS
end

-- Return the number of "min-gpus:8" and the like, or nil for what is not of this form.
local function number_of(option, name, most)
    local digits = option and string.match(option, "^" .. string.gsub(name, "-", "%%-") .. ":0*([1-9]%d*)$")
    local number = digits and #digits <= 9 and tonumber(digits)
    return number and number <= most and number or nil
end

local function is_known_option(option)
    return option == "off" or option == "preemptible"
        or number_of(option, "min-gpus", MOST_GPUS) ~= nil or number_of(option, "max-gpus", MOST_GPUS) ~= nil
        or number_of(option, "steps", math.huge) ~= nil or number_of(option, "epochs", math.huge) ~= nil
end

-- Tell the user about options in the comment that Headway does not know, such as a misspelt one: the job is submitted without
-- them. The controller reads the options by the same rules.
local function report_unknown_options(job)
    local options, unknown = options_in(job.comment), {}
    for _, option in pairs(options) do
        if not is_known_option(option) then
            table.insert(unknown, option)
        end
    end
    local least = number_of(options["min-gpus"], "min-gpus", MOST_GPUS)
    local most = number_of(options["max-gpus"], "max-gpus", MOST_GPUS)
    if least and most and least > most then
        table.insert(unknown, options["min-gpus"] .. "+" .. options["max-gpus"])
    end
    if #unknown == 0 then
        return slurm.SUCCESS
    end
    table.sort(unknown)
    slurm.log_user(
        "%s",
        string.format(
            "Headway: unknown options in the comment have no effect: %s. Headway knows off, preemptible, min-gpus:N and "
                .. "max-gpus:N (N from 1, the minimum not above the maximum), steps:N and epochs:N, joined by +.",
            string.sub(table.concat(unknown, ", "), 1, MAX_SHOWN_BYTES)
        )
    )
    return slurm.SUCCESS
end

-- Set HEADWAY_PROFILE=off for a job that is not to be measured: TaskProlog cannot see the comment on the nodes. The environment
-- of srun and salloc does not pass through this script; there the SPANK plugin or the user sets the variable.
local function pass_on_opt_out(job)
    local off = string.find(job.comment or "", PROFILE_OFF, 1, true)
        or options_in(job.comment).off
        or options_from_spank(job)[1] == "off"
    if off and is_batch(job) and job.environment then
        job.environment.HEADWAY_PROFILE = "off"
    end
    return slurm.SUCCESS
end

-- Submission -------------------------------------------------------------------------------------------------------

-- Return whether Slurm is to check that nodes can run the job.
local function needs_check(job, part_list, lease)
    return is_too_large(job, part_list, lease) or (is_in_doubt(job, part_list, lease) and take_check(lease))
end

-- Leave the job to Slurm's check: slurmctld refuses it at once, in its own words, if no nodes can ever run it. If it accepts the
-- job, the controller holds it. Until then the job has a begin time some seconds ahead, so that Slurm does not start it on nodes
-- of its own choice; the mark tells the controller that this time is not the user's. Without a controller the job starts then.
-- Jobs with GPUs by socket are placed by Slurm, and need not wait.
local function check_by_slurm(job)
    local now = os.time()
    local begin = is_time(job.begin_time) and job.begin_time or now
    if begin >= now + TAKEOVER_S or names_gpus(job.tres_per_socket) then
        return
    end
    if begin > now then -- a time of the user, which the controller does not end
        job.begin_time = now + TAKEOVER_S
        return
    end
    job.begin_time = now + CHECKED_TAKEOVER_S
    mark_new(job, CHECK_MARK .. string.format("%.0f", job.begin_time))
end

local function submit(job, part_list)
    local lease = fresh_lease()
    if not lease or not is_managed(job, part_list, lease) then
        return slurm.SUCCESS
    end
    if job.priority == 0 then -- the user's own --hold
        mark_new(job, USER_HOLD_MARK)
        if is_time(job.begin_time) then
            job.admin_comment = with_mark(job.admin_comment, BEGIN_MARK .. string.format("%.0f", job.begin_time))
        end
        return slurm.SUCCESS
    end
    local ok, needed = pcall(needs_check, job, part_list, lease)
    if ok and needed then
        check_by_slurm(job)
        wake(lease, "submit")
        return slurm.SUCCESS
    end
    mark_new(job, HOLD_MARK)
    job.priority = 0
    wake(lease, "submit")
    return slurm.SUCCESS
end

-- Changes ----------------------------------------------------------------------------------------------------------

-- Return the id that users see: "12", or "12_3" for one task of an array.
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

-- Return whether the change would end a hold: a release, a priority or a nice value. After a change of nice, Slurm with
-- priority/basic computes a new priority, and this ends a hold as well, also one in the same change; with priority/multifactor, which
-- the lease says, the hold stays.
local function would_release(job, lease)
    local by_nice = is_set(job.nice) and not (lease and lease.nice_keeps_holds)
    return job.priority == INFINITE or is_set(job.priority) or by_nice
end

local function note_hold(lease, id, record)
    if not write_hold(lease, id, record) then
        return false
    end
    if lease and lease.fresh then
        wake(lease, "user-hold " .. id)
    end
    return true
end

-- Write the hold of a user to its file, or refuse the change. Slurm itself does nothing when a user holds a job that is held
-- already, so a hold that was accepted but not written would be lost. This is so while the controller is away, too.
local function hold_for_user(lease, id, record)
    if note_hold(lease, id, record) then
        return slurm.SUCCESS
    end
    return refuse("Headway cannot record your hold of job %s at the moment. Try again in a few seconds.", id)
end

-- End a hold that the controller has not handled yet, with a release that changes nothing in Slurm: the job still waits for its
-- nodes. Return whether there was such a hold.
local function take_back_hold(lease, job, id)
    if not remove_hold(id) then
        return false
    end
    job.priority = NO_VAL
    wake(lease, "user-release " .. id)
    return true
end

local function modify_held_by_headway(lease, job, record)
    local id = shown_id(record)
    if job.priority == INFINITE and not has_mark(record.admin_comment, USER_HOLD_MARK) and take_back_hold(lease, job, id) then
        return slurm.SUCCESS
    end
    if would_release(job, lease) then
        return refuse(
            "Job %s is held because the scheduler Headway is choosing its nodes. It starts by itself, so there is no need to release "
                .. "it or to change its priority. `headway why %s` shows what it waits for. (If you have just put it on hold, try "
                .. "again in a few seconds.)",
            id, id
        )
    end
    return slurm.SUCCESS -- a begin time ends no hold, nor does this nice value; Headway reads both
end

-- Begin times that users gave to jobs on hold after the submission, by job id. Slurm does not show the begin time of a job to
-- Lua. A begin time that was given at submission is in the admin comment, which a later change by a user cannot set.
local begin_times = {}
local num_begin_times = 0

local function forget_begin(job_id)
    if begin_times[job_id] then
        begin_times[job_id] = nil
        num_begin_times = num_begin_times - 1
    end
end

-- Keep a begin time. Lua is not called when a job ends. So when there are too many times, those in the past are removed, and if
-- that is not enough, any other one.
local function remember_begin(job_id, time)
    forget_begin(job_id)
    if num_begin_times >= MOST_BEGIN_TIMES then
        for other, begin in pairs(begin_times) do
            if begin <= os.time() then
                forget_begin(other)
            end
        end
    end
    if num_begin_times >= MOST_BEGIN_TIMES then
        forget_begin((next(begin_times)))
    end
    begin_times[job_id] = time
    num_begin_times = num_begin_times + 1
end

local function begin_time_of(job, record)
    if is_time(job.begin_time) then
        return job.begin_time
    end
    local submitted = string.match(record.admin_comment or "", BEGIN_MARK .. "(%d+)")
    return begin_times[record.job_id] or tonumber(submitted) or 0
end

-- Handle a change of a job that its user holds. On a release Slurm would start the job on nodes of its own choice, so the job
-- gets a begin time some seconds ahead, by which the controller has taken it over. If the controller is away, the job starts
-- at that time.
local function modify_held_by_user(lease, job, record)
    if not would_release(job, lease) or job.priority == 0 then
        if is_time(job.begin_time) then
            remember_begin(record.job_id, job.begin_time)
        end
        return slurm.SUCCESS
    end
    job.begin_time = math.max(begin_time_of(job, record), os.time() + TAKEOVER_S)
    forget_begin(record.job_id)
    wake(lease, "user-release " .. shown_id(record))
    return slurm.SUCCESS
end

-- Handle a change by root of a job that Headway holds. Root's hold counts as one of the job's user, and a release ends a hold that the
-- controller has not handled yet; other releases pass. Headway's own changes by root look the same, but for marks that come with
-- them: so this is for a controller that runs as another user, and for a fresh lease, with which a watchdog changes nothing.
local function modify_by_root(job, record)
    local comment = record.admin_comment
    local plain = job.admin_comment == nil or job.admin_comment == ""
    if not (plain and record.priority == 0 and has_mark(comment, HOLD_MARK)) then
        return slurm.SUCCESS
    end
    local lease = fresh_lease()
    if not lease or lease.controller_uid == 0 then
        return slurm.SUCCESS
    end
    local id = shown_id(record)
    if job.priority == 0 then
        return hold_for_user(lease, id, record)
    end
    if job.priority == INFINITE and not has_mark(comment, USER_HOLD_MARK) then
        take_back_hold(lease, job, id)
    end
    return slurm.SUCCESS
end

-- Handle a change of a job. Slurm calls this before it checks whether the caller may change the job. So only changes by the
-- owner of the job and by root are handled here; those of the controller and operators pass, and Slurm refuses all others itself.
--
-- Other changes must not open a file: opening a missing file leaves an error number behind, which Slurm (22.05) reports as its
-- own when it changes the partition of a job.
local function modify(job, record, uid)
    if not (job.priority == 0 or would_release(job) or is_time(job.begin_time)) then
        return slurm.SUCCESS
    end
    if uid == 0 then
        return modify_by_root(job, record)
    end
    if uid ~= record.user_id then
        return slurm.SUCCESS
    end
    local lease = read_lease()
    if lease and uid == lease.controller_uid then
        return slurm.SUCCESS
    end
    local id, comment = shown_id(record), record.admin_comment
    local by_headway, by_user = has_mark(comment, HOLD_MARK), has_mark(comment, USER_HOLD_MARK)
    -- Slurm itself holds a placed job with priority 0, until somebody changes the job.
    local impossible = record.priority == 0 and has_mark(comment, PIN_MARK)
    if job.priority == 0 and (by_headway or impossible) then
        return hold_for_user(lease, id, record)
    end
    -- The controller may be about to hold the job itself, which hides this hold. For a placed job this counts with a stale lease
    -- too: the controller may work by a clock that was set wrong. Without a controller Slurm keeps the hold of any other job
    -- itself, and a file would take the room of holds that Slurm cannot keep.
    local managed = lease and lease.fresh and wants_gpus(record) and in_managed_partitions(record, {}, lease)
    if job.priority == 0 and (managed or has_mark(comment, PIN_MARK)) then
        note_hold(lease, id, record)
    end
    if by_headway and record.priority == 0 and lease and lease.fresh then
        return modify_held_by_headway(lease, job, record)
    end
    if would_release(job, lease) and job.priority ~= 0 then
        remove_hold(id)
    end
    if by_user and record.priority == 0 and lease and lease.fresh then
        return modify_held_by_user(lease, job, record)
    end
    return slurm.SUCCESS
end

-- What slurmctld calls ---------------------------------------------------------------------------------------------

-- Functions of the site's script that loaded this one, if any; never those of an earlier load of this file.
local others = {}
if not headway_job_submit then
    others.submit, others.modify = slurm_job_submit, slurm_job_modify
else
    others = headway_job_submit.others
end
headway_job_submit = { version = 11, others = others }

-- Call a function of this file. An error in it is logged, and the job passes.
local function guarded(what, call, ...)
    local ok, result = pcall(call, ...)
    if ok then
        return result
    end
    pcall(slurm.log_error, "headway: %s: %s; the job passes unchanged", what, tostring(result))
    return slurm.SUCCESS
end

-- Return whether a site's function has refused a job. Slurm takes a result that is not a number, such as nil, as success.
local function refused(result)
    local code = tonumber(result)
    return code ~= nil and code ~= slurm.SUCCESS
end

function slurm_job_submit(job_desc, part_list, submit_uid)
    if others.submit then
        local result = others.submit(job_desc, part_list, submit_uid)
        if refused(result) then
            return result
        end
    end
    guarded("options", add_options_to_comment, job_desc)
    guarded("unknown options", report_unknown_options, job_desc)
    guarded("opt-out", pass_on_opt_out, job_desc)
    return guarded("job_submit", submit, job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
    if others.modify then
        local result = others.modify(job_desc, job_rec, part_list, modify_uid)
        if refused(result) then
            return result
        end
    end
    if USER_SEES_TEXT then
        guarded("unknown options", report_unknown_options, job_desc)
    end
    return guarded("job_modify", modify, job_desc, job_rec, modify_uid)
end

return slurm.SUCCESS
