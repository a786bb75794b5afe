"""The scientific paper: invented measurements, no real people or places."""

from __future__ import annotations

from _content import Block, Bullets, Cell, Figure, Footnote, Formula, Heading, Para, Table

RUNNING_HEADER = "Example Lab – Open Instruments Series, Paper 14"
TITLE = Heading(1, "Estimating Evaporation from Small Lakes with Low-Cost Temperature Chains")
AUTHORS = Para("Example Lab, Group for Open Instruments", "author")
ABSTRACT = (
    Heading(2, "Abstract"),
    Para(
        "Evaporation is often the largest unknown in the water budget of a small lake. We describe a floating "
        "station that costs less than 400 euros and estimates daily evaporation from a chain of twelve temperature "
        "sensors, one humidity sensor and one radiation sensor. The method closes the energy balance of the lake "
        "and needs no wind measurement. Over 92 summer days on a reservoir of 3.1 hectares, daily values agree with "
        "a floating pan to within 0.41 mm, and the seasonal total differs by 1.1 percent. Most of the remaining "
        "error comes from heat stored below the lowest sensor.",
        "abstract",
    ),
)

BODY: tuple[Block, ...] = (
    Heading(2, "1 Introduction"),
    Para(
        "Small lakes and reservoirs lose water to the atmosphere at a rate that is difficult to measure directly. "
        "A floating pan disturbs the exchange it is meant to record, and eddy covariance needs an in\xadstru\xadment "
        "that costs more than many water users can spend [1]. Man\xadagers there\xadfore rely on formulas fitted to "
        "large lakes, where wind reaches the whole surface. On a sheltered pond such formulas can be wrong by a "
        "third [2]."
    ),
    Para(
        "The energy balance offers another way. Water that evaporates takes latent heat with it, and this heat must "
        "come from net radiation, from the air or from the water body. If the first and the last term are known, the "
        "ratio of sensible to latent heat is enough to solve for evap\xadoration. The ratio can be had from two "
        "temp\xader\xadatures and two vapour pressures [3], so wind does not enter at all."
    ),
    Para(
        "Until recently the weak point was the heat stored in the water. It has to be known every day to a few "
        "hundredths of a degree, averaged over the full depth. Digital thermo\xadmeters with a res\xado\xadlu\xadtion "
        "of 0.01 °C are now sold for about two euros each. This paper asks how far a chain of such sensors can "
        "replace an expensive station. Our contributions are:"
    ),
    Bullets(
        (
            "a complete and reproducible design of a floating station, with parts that any electronics supplier "
            "has in stock;",
            "a cal\xadi\xadbra\xadtion procedure that removes most of the spread between cheap sensors in one night;",
            "a comparison over 92 days with a floating pan and with a published wind formula;",
            "an error budget that shows which sensor is worth more money.",
        )
    ),
    Heading(2, "2 Method"),
    Heading(3, "2.1 Site and Instruments"),
    Para(
        "The study site is a drinking water reservoir with a surface of 3.1 hectares and a mean depth of 4.8 m. It "
        "has no natural inflow in summer. Trees on three sides keep the mean wind speed at 2 m height below 1.5 m/s. "
        "The station floats at the deepest point and carries the sensors listed in Table 1. All sensors are read "
        "once a minute, and averages over ten minutes are stored on a memory card."
    ),
    Table(
        caption="Table 1: Sensors of the floating station.",
        header=(("Quantity", "Height or depth", "Error", "Price"),),
        rows=(
            ("Water temperature, 12 sensors", "0.05 to 5.5 m", "0.02 °C", "26 €"),
            ("Air temperature", "1.0 m", "0.1 °C", "9 €"),
            ("Relative humidity", "1.0 m", "1.8 %", "14 €"),
            ("Net radiation", "1.2 m", "4 %", "235 €"),
            ("Logger and battery", "0.4 m", "–", "78 €"),
        ),
        widths=(0.40, 0.26, 0.17, 0.17),
        align=("l", "l", "r", "r"),
    ),
    Para(
        "Before deployment the twelve thermo\xadmeters spent one night in a stirred bucket.[^1] Their readings were "
        "fitted to the mean of the group with one offset each. After this step the standard deviation between "
        "sensors fell from 0.09 °C to 0.012 °C, which is close to the reso\xadlution of the converter. The offsets "
        "did not change by more than 0.01 °C when the test was repeated after the season."
    ),
    Heading(3, "2.2 Energy Balance"),
    Para(
        "Let $E$ be the evaporation in metres per second, $R_n$ the net radiation and $Q_s$ the rate of change of "
        "the heat stored in the lake, both in watts per square metre. With the density of water $\\rho$, the latent "
        "heat $L$ and the Bowen ratio $B$, the energy balance gives"
    ),
    Formula(r"E = \frac{R_n - Q_s}{\rho L (1 + B)}", 1),
    Para("The Bowen ratio follows from the temp\xader\xadatures and vapour pressures of surface and air,", "cont"),
    Formula(r"B = \gamma \frac{T_0 - T_a}{e_0 - e_a}", 2),
    Para(
        "where $T_0$ is the reading of the uppermost sensor, $e_0$ the sat\xaduration pressure at that temp\xader\xad"
        "ature and $\\gamma$ the psychro\xadmetric constant. Stored heat is summed over the $N = 12$ layers around "
        "the sensors,",
        "cont",
    ),
    Formula(r"Q_s = \rho c \sum_{i=1}^{N} w_i \frac{\Delta T_i}{\Delta t}", 3),
    Para(
        "with the specific heat $c$ and layer weights $w_i$ that follow from the depth chart of the reservoir. We "
        "evaluate Equation (3) from midnight to midnight, so that $\\Delta t$ is one day. Days on which $B$ lies "
        "between −1.3 and −0.7 are skipped because the denom\xadin\xadator of Equation (1) is then close to "
        "zero.",
        "cont",
    ),
    Heading(3, "2.3 Reference Measurements"),
    Para(
        "A floating pan of 1.2 m diameter was read every morning at seven. Rain was taken from two gauges on the "
        "shore. Readings with more than 6 mm of rain were excluded because splash could not be ruled out, which "
        "leaves 81 of 92 days. As a second reference we use the wind formula of an earlier report [2] with wind "
        "speed from a mast on the dam."
    ),
    Heading(2, "3 Results"),
    Heading(3, "3.1 Daily Values"),
    Para(
        "Figure 1 shows ten-day means over the season. The energy balance follows the pan closely, while the wind "
        "formula stays too low in every period. The gap is largest in the calm weeks of July, when the mast on the "
        "dam recorded less than 1 m/s on most days."
    ),
    Figure(
        name="paper_figure_1",
        caption="Figure 1: Ten-day means of evaporation from energy balance, floating pan and wind formula.",
        kind="line",
        labels=("Jun 1", "Jun 11", "Jun 21", "Jul 1", "Jul 11", "Jul 21", "Aug 1", "Aug 11", "Aug 21"),
        series=(
            ("Energy balance", (3.1, 3.5, 4.2, 4.6, 4.9, 4.7, 4.1, 3.8, 3.2)),
            ("Floating pan", (3.0, 3.6, 4.1, 4.8, 4.8, 4.5, 4.2, 3.7, 3.0)),
            ("Wind formula", (2.4, 2.6, 3.0, 3.1, 3.0, 3.2, 3.1, 2.9, 2.5)),
        ),
        unit="mm per day",
    ),
    Para(
        "Table 2 gives the statistics by month. The root mean square error of the energy balance is 0.41 mm per day "
        "over the whole season and does not depend on the month. The wind formula has an error more than three times "
        "as large, and nearly all of it is bias. A regression of daily values on the pan has a slope of 0.97 and "
        "explains 88 percent of the variance."
    ),
    Table(
        caption="Table 2: Daily evaporation by month: mean, bias and root mean square error (RMSE) in mm.",
        header=(("Month", "Days", "Pan", "Balance", "Bias", "RMSE"),),
        rows=(
            ("June", "26", "3.57", "3.60", "0.03", "0.39"),
            ("July", "29", "4.70", "4.73", "0.03", "0.43"),
            ("August", "26", "3.63", "3.70", "0.07", "0.40"),
            ("Season", "81", "3.99", "4.04", "0.04", "0.41"),
        ),
        widths=(0.20, 0.15, 0.15, 0.20, 0.14, 0.16),
        align=("l", "r", "r", "r", "r", "r"),
        rules="booktabs",
    ),
    Heading(3, "3.2 Error Budget"),
    Para(
        "We repeated the analysis with each input disturbed by its error from Table 1 and counted how far the daily "
        "and the seasonal value moved. Table 3 lists the result. On single days the stored heat dominates: an error "
        "of 0.02 °C over the full depth is worth 4.6 watts per square metre, or 0.16 mm of evap\xadoration. These "
        "errors cancel over the season, because heat that is missed on one day is found on the next."
    ),
    Table(
        caption="Table 3: Effect of each input on evaporation.",
        header=(
            (Cell("Input", rowspan=2), Cell("One day", colspan=2), Cell("Season", colspan=2)),
            ("mm", "%", "mm", "%"),
        ),
        rows=(
            ("Net radiation", "0.15", "3.7", "12.6", "3.4"),
            ("Water temperature", "0.16", "4.0", "1.1", "0.3"),
            ("Humidity", "0.06", "1.5", "4.8", "1.3"),
            ("Layer weights", "0.05", "1.2", "2.2", "0.6"),
        ),
        widths=(0.36, 0.16, 0.16, 0.16, 0.16),
        align=("l", "r", "r", "r", "r"),
    ),
    Para(
        "For the seasonal total, net radiation is the only input that matters. Its error is proportional to the "
        "signal and does not average out. A better radiation sensor would therefore be the first upgrade for users "
        "who need annual budgets, whereas users who need daily values should add thermo\xadmeters below 5.5 m."
    ),
    Heading(3, "3.3 Number of Sensors"),
    Para(
        "How many thermo\xadmeters are enough? We removed sensors from the chain one at a time, always the one whose "
        "loss changed the result least, and computed the error again. With six sensors the daily error rises from "
        "0.41 mm to 0.46 mm. With three it reaches 0.74 mm, and with the surface sensor alone the method fails on "
        "every day with a change of weather. Eight sensors are a good choice for a lake of this depth.[^2] The spacing "
        "matters as well: the upper two metres hold most of the daily signal and deserve half of the sensors."
    ),
    Heading(3, "3.4 A Year Without Service"),
    Para(
        "Cheap sensors drift, and a chain in open water is soon covered with algae. To see how long the station can "
        "be left alone, we kept it on the lake for another nine months without cleaning. Table 4 shows how far "
        "three of the sensors had moved when they were tested again. The thermo\xadmeters were hardly affected: a "
        "film of algae delays the reading by about one minute, which does not matter for daily values. The humidity "
        "sensor read too high after the winter and had to be replaced. The dome of the radiation sensor lost 3 "
        "percent of its trans\xadmission but recovered fully when it was wiped with a wet cloth."
    ),
    Table(
        caption="Table 4: Drift after twelve months on the lake.",
        header=(("Sensor", "Before cleaning", "After cleaning"),),
        rows=(
            ("Thermometers, mean", "0.008 °C", "0.006 °C"),
            ("Humidity", "4.6 %", "4.4 %"),
            ("Net radiation", "3.1 %", "0.2 %"),
        ),
        widths=(0.44, 0.29, 0.27),
        align=("l", "r", "r"),
        rules="none",
    ),
    Para(
        "We conclude that two visits a year are enough, one in spring and one in autumn. At each visit the humidity "
        "sensor is exchanged for one that was cali\xadbrated over salt solutions in the laboratory, and the dome is "
        "wiped. The work takes less than an hour and needs a rowing boat and one person on the shore."
    ),
    Heading(2, "4 Discussion"),
    Para(
        "The results hold for one sheltered reservoir and one summer. Three limits should be kept in mind. First, "
        "the method needs a lake without strong inflow, since water that enters or leaves carries heat. Second, the "
        "surface temp\xader\xadature is measured 5 cm below the surface and can miss a thin warm layer on calm "
        "afternoons. Third, the balance gives daily values only; hourly values would require a better treatment "
        "of heat exchange with the sediment."
    ),
    Para(
        "In return the station is simple. It has no moving parts, it needs no calm or windy hours to be filtered out, "
        "and a gap of a few hours in the record does little harm because only the heat content at midnight enters "
        "the balance. During the season the station ran for 89 of 92 days. The three lost days were due to a "
        "battery that had not been charged before the second service visit."
    ),
    Para(
        "The cost deserves a remark. Of the 362 euros for parts, nearly two thirds go into the radiation sensor. We "
        "tried to replace it with a pair of silicon photo\xaddiodes for less than 20 euros. The seasonal total then "
        "moved by 9 percent, which is still better than the wind formula. Where the budget is very small, this may "
        "be acceptable."
    ),
    Para(
        "It is tempting to use the station on larger lakes as well. Two conditions would then have to be checked. The "
        "lake should be mixed well enough in the horizontal for one chain to represent it, which is doubtful when "
        "wind piles up warm water at one end. And the reach of the humidity sensor should not include dry land. "
        "A simple test is to move the station for a week to another place and to compare the stored heat. On our "
        "reservoir the two places differed by less than 3 watts per square metre."
    ),
    Para(
        "Other users may ask for values in real time. The logger can send its averages by radio, and the balance can "
        "be computed for the day before at one minute past midnight. We have done so for a month without a loss. The "
        "daily value is then shown on a small page together with the level of the reservoir, so that a leak in the "
        "dam would be noticed as a difference between the two."
    ),
    Heading(2, "5 Conclusion"),
    Para(
        "A chain of twelve cheap thermo\xadmeters is good enough to close the energy balance of a small lake. Daily "
        "evap\xadoration was accurate to 0.41 mm and the seasonal total to 1.1 percent, at a tenth of the cost of a "
        "conventional station. The design, the firmware and the data of this paper are free to use. Next we will "
        "test the station on a pond with inflow, where a flow meter has to supply the missing term."
    ),
    Heading(2, "References"),
    Para("[1] Example Lab: Instruments for open water evaporation, a survey. Technical Report 3, 2019.", "reference"),
    Para("[2] Example Lab: Wind formulas on sheltered ponds. Open Instruments Series, Paper 6, 2021.", "reference"),
    Para(
        "[3] Example Institute: Notes on the Bowen ratio method. Lecture Notes in Hydrology 11, pp. 40–58, 2016.",
        "reference",
    ),
    Para("[4] Example Lab: Calibrating digital thermometers in a bucket. Technical Report 9, 2023.", "reference"),
    Para(
        "[5] Example Institute: Heat storage of shallow lakes. Reports in Hydrology 27 (2), pp. 101–119, 2020.",
        "reference",
    ),
)

# At the foot of the right column, where the end of the column is the end of the page: parsers that gather
# footnotes by column and parsers that gather them by page then agree on the order.
FOOTNOTES = (
    Footnote(1, "The bucket holds 20 litres; a small pump turns its content over once a minute.", page=1, column=2),
    Footnote(2, "On a pond less than 2 m deep, five sensors were enough in a short test.", page=2, column=2),
)
