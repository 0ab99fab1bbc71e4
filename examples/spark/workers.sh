#!/bin/bash
#SBATCH --job-name=spark-workers
#SBATCH --malleable=1-16,engine=pool
#SBATCH --time=08:00:00
#SBATCH --cpus-per-task=1
#SBATCH --output=spark-workers-%A_%a.log
#SBATCH --open-mode=append

# A Spark worker on each node that can be spared. The master runs elsewhere:
#   $SPARK_HOME/bin/spark-class org.apache.spark.deploy.master.Master
# SPARK_MASTER is its address, spark://host:7077. At SIGPWR a worker is decommissioned: its executors
# take nothing new, finish their tasks and hand their blocks to others (spark.storage.decommission.*
# of the application). It does not end by itself: malleable run ends it when the notice is over.
SPARK_HOME=${SPARK_HOME:-$(python3 -c 'import os, pyspark; print(os.path.dirname(pyspark.__file__))')}
export SPARK_WORKER_OPTS="-Dspark.decommission.enabled=true ${SPARK_WORKER_OPTS:-}"
exec malleable run --signal=PWR -- "$SPARK_HOME/bin/spark-class" org.apache.spark.deploy.worker.Worker \
  --host "$MALLEABLE_ADDR" --webui-port 0 --cores "${SLURM_CPUS_PER_TASK:-1}" \
  --memory "${SPARK_WORKER_MEMORY:-1g}" --work-dir "/tmp/spark-$SLURM_JOB_ID" "$SPARK_MASTER"
