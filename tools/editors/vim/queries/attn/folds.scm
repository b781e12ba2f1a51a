[(block) (check) (schedule) (parameters)] @fold
