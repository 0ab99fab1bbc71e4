--- Refuse the options of sbatch that a malleable job cannot take, and say how to replace them.
--
-- The input is the fields of a job as its user gave them, the output is lines of text. Runs on
-- Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

local NO_VAL = 4294967294 -- an unset 32-bit field
local SHARED_TOPO = 4 -- slurm.h, JOB_SHARED_TOPO (24.11)

local function is_given(value)
  return value ~= nil and value ~= NO_VAL
end

--- Each function checks one option. It returns nil, or the fault and how to mend it.
local CHECKS = {
  function(job)
    if job.array_inx then
      return "--array: --malleable already creates an array; drop --array, and submit one job "
        .. "per case"
    end
  end,
  function(job)
    if is_given(job.het_job_offset) then
      return "heterogeneous job: its parts cannot be malleable; drop the ':' or hetjob parts"
    end
  end,
  function(job)
    if job.cron_job then
      return "scrontab: an entry cannot be malleable; let the entry call sbatch --malleable=..."
    end
  end,
  function(job)
    if job.requeue == 0 then
      return "--no-requeue: a malleable job gives nodes back by a requeue; drop --no-requeue, and "
        .. "let the script resume from its checkpoint"
    end
  end,
  function(job)
    local list = (job.dependency or ""):lower()
    if list:find("singleton", 1, true) then
      return "--dependency=singleton: the job's own fragments would wait for each other; "
        .. "write --dependency=afterany:JOBID"
    end
    if list:find("expand:", 1, true) then
      return "--dependency=expand: a malleable job grows automatically; drop it"
    end
    if list:find("aftercorr:", 1, true) then
      return "--dependency=aftercorr: aftercorr does not apply to fragments; write "
        .. "--dependency=afterok:JOBID"
    end
  end,
  function(job)
    if (job.begin_time or 0) > 0 then
      return "--begin: a malleable job starts when nodes are idle, not at a set time; drop "
        .. "--begin, or write --dependency=afterany:JOBID"
    end
  end,
  function(job)
    if job.priority == 0 then
      return "--hold: fragments are always held until nodes are idle, and then start; drop "
        .. "--hold, and submit when the job may start"
    end
  end,
  function(job)
    if job.req_nodes then
      return "--nodelist: a malleable job takes the nodes that are idle; drop it, and narrow the "
        .. "choice with --constraint or --exclude"
    end
  end,
  function(job)
    if job.reservation then
      return "--reservation: a malleable job takes only nodes outside reservations; drop it, or "
        .. "submit without --malleable to use the reservation"
    end
  end,
  function(job)
    if job.contiguous == 1 then
      return "--contiguous: idle nodes cannot be chosen by position; drop it, and narrow the "
        .. "choice with --constraint"
    end
  end,
  function(job)
    if is_given(job.req_switch) and job.req_switch > 0 then
      return "--switches: idle nodes cannot be chosen by switch, and a fragment that waits for "
        .. "other nodes loses its own; drop it, and narrow the choice with --constraint"
    end
  end,
  function(job)
    if job.shared == SHARED_TOPO then
      return "--exclusive=topo: a fragment would keep the job's other fragments off its switch; "
        .. "drop it: each fragment has whole nodes anyway"
    end
  end,
  function(job)
    if job.licenses then
      -- Even preemption does not free a licence (22.05.8), and leases are renewed.
      return "--licenses=" .. job.licenses .. ": Slurm preempts only for nodes, so other jobs "
        .. "would wait for this job's licences; drop it, or submit without --malleable"
    end
  end,
  function(job)
    if job.reboot == 1 then
      return "--reboot: nodes would reboot each time the job grows; drop --reboot"
    end
  end,
  function(job)
    if (job.comment or ""):find("%c") then
      return "--comment: the reconciler reads comments by lines, and this text has a line break or "
        .. "another control character; write it in one line"
    end
  end,
}

--- Return all faults of a job's options, an empty list if there is no fault.
function M.check(job)
  local faults = {}
  for _, check in ipairs(CHECKS) do
    faults[#faults + 1] = check(job)
  end
  return faults
end

return M
