--- Use this job_submit.lua if your site has no such file: copy it beside slurm.conf, and set
-- JobSubmitPlugins=lua there. If your site has its own file, add the pcall line to that file
-- instead, before its final `return slurm.SUCCESS`.

function slurm_job_submit(_job_desc, _partitions, _uid)
  return slurm.SUCCESS
end

function slurm_job_modify(_job_desc, _job_rec, _partitions, _uid)
  return slurm.SUCCESS
end

pcall(dofile, "/usr/share/slurm-malleable/lua/malleable_submit.lua")

return slurm.SUCCESS
