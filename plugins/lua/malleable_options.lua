--- Options of sbatch that a malleable job cannot take, and what to write instead.
--
-- The fields of a job as its user gave them in, lines out. Runs on Lua 5.1 (Debian's Slurm) to 5.4.

local M = {}

local NO_VAL = 4294967294 -- an unset 32-bit field
local SHARED_TOPO = 4 -- slurm.h, JOB_SHARED_TOPO (24.11)

local function is_given(value)
  return value ~= nil and value ~= NO_VAL
end

--- Each checks one option and returns nothing, or what is wrong and what to write instead.
local CHECKS = {
  function(job)
    if job.array_inx then
      return "--array: a malleable job is made an array by itself; drop --array, and submit "
        .. "one job per case"
    end
  end,
  function(job)
    if is_given(job.het_job_offset) then
      return "heterogeneous job: components cannot be malleable; drop the ':' or hetjob parts"
    end
  end,
  function(job)
    if job.cron_job then
      return "scrontab: an entry cannot be malleable; let the entry call sbatch --malleable=..."
    end
  end,
  function(job)
    if job.requeue == 0 then
      return "--no-requeue: nodes are given back by requeueing; drop --no-requeue, and let the "
        .. "script resume from its checkpoint"
    end
  end,
  function(job)
    local list = (job.dependency or ""):lower()
    if list:find("singleton", 1, true) then
      return "--dependency=singleton: the job's own fragments would wait for each other; "
        .. "write --dependency=afterany:JOBID"
    end
    if list:find("expand:", 1, true) then
      return "--dependency=expand: a malleable job grows by itself; drop it"
    end
    if list:find("aftercorr:", 1, true) then
      return "--dependency=aftercorr: fragments are no tasks that match those of another array; "
        .. "write --dependency=afterok:JOBID"
    end
  end,
  function(job)
    if (job.begin_time or 0) > 0 then
      return "--begin: nodes are given when there are some over, at no set time; drop --begin, "
        .. "or write --dependency=afterany:JOBID"
    end
  end,
  function(job)
    if job.priority == 0 then
      return "--hold: fragments are held anyway until nodes are left over, and start then; drop "
        .. "--hold, and submit when the job may start"
    end
  end,
  function(job)
    if job.req_nodes then
      return "--nodelist: nodes are chosen among those left over; drop it, and narrow the "
        .. "choice with --constraint or --exclude"
    end
  end,
  function(job)
    if job.reservation then
      return "--reservation: nodes left over are those that nobody has reserved; drop it, or "
        .. "submit without --malleable to use the reservation"
    end
  end,
  function(job)
    if job.contiguous == 1 then
      return "--contiguous: nodes left over are where they are; drop it, and narrow the choice "
        .. "with --constraint"
    end
  end,
  function(job)
    if is_given(job.req_switch) and job.req_switch > 0 then
      return "--switches: nodes left over are where they are, and a fragment that waits for "
        .. "others loses those it was given; drop it, and narrow the choice with --constraint"
    end
  end,
  function(job)
    if job.shared == SHARED_TOPO then
      return "--exclusive=topo: a fragment would keep the job's other fragments off its switch; "
        .. "drop it, fragments have whole nodes to themselves anyway"
    end
  end,
  function(job)
    if job.licenses then
      -- Not even preemption frees a licence (22.05.8), and leases are renewed.
      return "--licenses=" .. job.licenses .. ": Slurm preempts for nodes alone, so jobs that wait "
        .. "for a licence would wait for fragments; drop it, or submit without --malleable"
    end
  end,
  function(job)
    if job.reboot == 1 then
      return "--reboot: the nodes would be rebooted at every growth; drop --reboot"
    end
  end,
  function(job)
    if (job.comment or ""):find("%c") then
      return "--comment: it has a line break or another control character, and the reconciler "
        .. "reads comments by lines; write it in one line"
    end
  end,
}

--- All faults of a job's options; empty if there are none.
function M.check(job)
  local faults = {}
  for _, check in ipairs(CHECKS) do
    faults[#faults + 1] = check(job)
  end
  return faults
end

return M
