#!/bin/bash
#SBATCH --job-name=search-storage
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --time=02:00:00
#SBATCH --output=proxy.log

exec python3 proxy.py "$@"
