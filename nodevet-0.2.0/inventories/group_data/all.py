# Data of every host of the pyinfra inventory beside this folder.

ssh_user = "ops"
