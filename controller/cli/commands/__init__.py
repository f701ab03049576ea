"""The commands of `headway`, one module for each subject.
Imports `cli/client`, `cli/cluster`, `cli/doctor`, `cli/profile_export` and `cli/render`; of other packages `protos`.
"""
